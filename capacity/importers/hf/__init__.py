"""From the keys of a Hugging Face configuration to a `ModelSpec`; what each type means is data in ``data/hf_types``."""
