"""What notebooks share: data, pictures, timelines."""
