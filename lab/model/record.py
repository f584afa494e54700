"""Values of models as lines `summary`, which the report tabulates and draws like measured ones."""


def record(contestant, case, quantity, value, unit="s"):
    return {
        "record": "summary",
        "benchmark": "model",
        "contestant": contestant,
        "case": case,
        "quantity": quantity,
        "unit": unit,
        "median": value,
    }


def medians(results, benchmark, contestant, quantity, **where):
    """The medians of a contestant by number of processes, in the cases that have these fields."""
    values = results.values
    values = values[(values.benchmark == benchmark) & (values.contestant == contestant) & (values.quantity == quantity)]
    fields = values.case.map(results.cases.get)
    return {
        case["ranks"]: median for case, median in zip(fields, values["median"]) if where.items() <= case.items()
    }
