"""What notebooks share: data, pictures, ranks in a group, the words of an exercise's check."""
