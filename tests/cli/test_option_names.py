"""Names of options, whichever version of typer reads them."""

import inspect
from typing import get_args

import pytest
from typer.models import OptionInfo

from membound.cli import app


@pytest.mark.parametrize("command", app.registered_commands, ids=lambda command: command.name)
def test_no_option_takes_its_name_from_its_metavar(command):
    """Some versions (0.27) call an option `--DEVICE` whose metavar is its name in capitals, unless it is named."""
    for name, parameter in inspect.signature(command.callback).parameters.items():
        for info in get_args(parameter.annotation)[1:]:
            # Within Annotated a first name stands where a default would.
            if isinstance(info, OptionInfo) and not (info.param_decls or isinstance(info.default, str)):
                assert (info.metavar or "").lower().replace("_", "-") != name.replace("_", "-"), name
