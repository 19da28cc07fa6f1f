"""Alert rules, dashboard and reference page, made from the declarations of the metrics."""
