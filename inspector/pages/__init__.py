"""What a person sees: figures, report pages."""
