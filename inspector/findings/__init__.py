"""What the heads do: prompts, scores, controls and verdicts as tables."""
