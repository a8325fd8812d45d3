"""What a network can become: a model file of trained weights, ONNX, a folder for the Hugging Face Hub."""
