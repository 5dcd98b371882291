"""What `secondread doctor` looks at, a module a subject."""
