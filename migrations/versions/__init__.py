"""The revisions, oldest first by their file names."""
