"""The story: one module a stage, one public function a module. Start at `pipeline/flow.py`."""
