"""`python -m onnxport.exporters.cli`, where the script is not on PATH."""

from onnxport.exporters.cli import main

main()
