"""What stands behind `@advisor.autotune`: one file per concept. `advisor.autotune` is the public face."""
