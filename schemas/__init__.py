"""What travels: messages, handles, findings, webhook bodies. Frozen models without behaviour."""
