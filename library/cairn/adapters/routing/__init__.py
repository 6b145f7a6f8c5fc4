"""Which of several adapters a prompt is for: features of the base model, a small classifier, its evaluation."""
