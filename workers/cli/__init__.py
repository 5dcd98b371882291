"""The `secondread` command."""
