"""Are two runners the same function? numpy and onnxruntime only; knows nothing of Hugging Face."""
