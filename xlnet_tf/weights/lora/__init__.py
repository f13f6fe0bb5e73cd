"""LoRA: dense layers with adapters, adapters of a model, files of adapters."""
