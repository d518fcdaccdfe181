"""Outside formats made into specs: Hugging Face configurations and checkpoint headers."""
