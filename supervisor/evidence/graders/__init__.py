"""What graders did and said."""
