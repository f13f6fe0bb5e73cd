"""LoRA: dense layers with adapters, adapters of a model, adapter files."""
