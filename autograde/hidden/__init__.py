"""Hidden tests, one file a lesson: fresh inputs from the class seed, compared with the reference solution."""
