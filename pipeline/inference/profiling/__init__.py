"""What a model costs on a device: foretold, measured, kept, drawn."""
