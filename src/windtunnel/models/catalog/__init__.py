"""The catalog of models and accelerators, and the reader of Hugging Face configurations."""
