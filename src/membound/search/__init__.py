"""From a budget to a network: how much each layer keeps, and where the work runs."""
