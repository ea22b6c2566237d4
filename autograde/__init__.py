"""The teacher's side: runs submissions in a sandbox, tests them from outside, and feeds nbgrader."""
