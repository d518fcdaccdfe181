"""What the world is: frozen Pydantic models that validate and do nothing else."""
