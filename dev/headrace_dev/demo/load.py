"""The load of the demo shop: a constant mix of transactions until it is stopped.

Every kind of change that a sink has to get right is among them: inserts, updates that leave TOAST columns untouched,
updates that replace them or set them to null, deletes, changes of simple and composite keys.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[tuple[Any, ...]]

TABLES = ("customers", "products", "orders", "order_items", "reviews")
_SCHEMA = Path(__file__).with_name("schema.sql")
_WORDS = (
    *("amber", "brook", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty"),
    *("knoll", "ledge", "marsh", "nook", "oxbow", "pond", "quay", "reef"),
)
_STATES = ("paid", "packed", "shipped", "delivered")


class Shop:
    """The shop's data: which keys exist. Each method changes them in one transaction."""

    def __init__(self, connection: Connection, seed: int = 1) -> None:
        self._connection = connection
        self._random = random.Random(seed)
        self._customers: list[int] = []
        self._skus: list[str] = []
        self._orders: list[int] = []
        self._reviews: list[uuid.UUID] = []
        self._next_number = 1
        self._mix: tuple[tuple[int, Callable[[], None]], ...] = (
            (8, self.register),
            (25, self.order),
            (25, self.advance_order),
            (15, self.change_price),
            (4, self.describe),
            (8, self.review),
            (10, self.vote),
            (6, self.cancel_order),
            (4, self.renumber_line),
            (2, self.rename_product),
            (2, self.withdraw_review),
            (1, self.launch_product),
        )

    def open(self, customers: int = 500, products: int = 100, orders: int = 1000, reviews: int = 50) -> None:
        """Create the tables and the products, so that the connector has rows for its snapshot."""
        self._connection.execute(_SCHEMA.read_bytes())
        counts = (customers, products, orders, reviews)
        for count, change in zip(counts, (self.register, self.launch_product, self.order, self.review), strict=True):
            for _ in range(count):
                change()

    def reopen(self, connection: Connection) -> None:
        """Continue over another connection. Read the keys again: the last transaction may have committed or not."""
        self._connection = connection
        self._customers = self._keys("SELECT id FROM customers ORDER BY id")
        self._skus = self._keys("SELECT sku FROM products ORDER BY sku")
        self._orders = self._keys("SELECT id FROM orders ORDER BY id")
        self._reviews = self._keys("SELECT id FROM reviews ORDER BY id")

    def change(self) -> None:
        """Run one transaction of the mix."""
        weights, changes = zip(*self._mix, strict=True)
        self._random.choices(changes, weights)[0]()

    def register(self) -> None:
        """Insert a customer."""
        number = self._number()
        preferences = Jsonb({"theme": self._word(), "mails": self._random.random() < 0.5, "größe": [1, None, 2.5]})
        self._run(
            "INSERT INTO customers VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (
                number,
                self._words(2),
                self._maybe(f"{self._word()}@example.org"),
                self._amount(),
                False,
                preferences,
                _now(),
            ),
        )
        self._customers.append(number)

    def launch_product(self) -> None:
        """Insert a product with a long description and a picture."""
        sku = f"{self._word()}-{self._number()}"
        tags = self._maybe([self._word(), None, self._word()])
        row = (
            sku,
            self._words(3),
            self._amount(),
            self._random.random() * 10,
            tags,
            self._text(),
            self._picture(),
            _now(),
        )
        self._run("INSERT INTO products VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", row)
        self._skus.append(sku)

    def order(self) -> None:
        """Insert an order of one to four lines."""
        number = self._number()
        due = self._maybe(date(2026, 1, 1) + timedelta(days=self._random.randrange(400)))
        with self._connection.transaction():
            self._run(
                "INSERT INTO orders VALUES (%s, %s, %s, %s, %s, %s)",
                (number, self._random.choice(self._customers), "new", _now(), due, self._maybe(self._words(5))),
            )
            for line in range(1, self._random.randint(2, 5)):
                item = (number, line, self._random.choice(self._skus), self._random.randint(1, 9), self._amount())
                self._run("INSERT INTO order_items VALUES (%s, %s, %s, %s, %s)", item)
        self._orders.append(number)

    def advance_order(self) -> None:
        """An order moves on, and its customer pays."""
        state = self._random.choice(_STATES)
        with self._connection.transaction():
            self._run("UPDATE orders SET state = %s WHERE id = %s", (state, self._random.choice(self._orders)))
            paid = (self._amount(), self._random.choice(self._customers))
            self._run("UPDATE customers SET balance = balance + %s, vip = NOT vip WHERE id = %s", paid)

    def change_price(self) -> None:
        """Change a price. The event has placeholders for description and picture, which Headrace reselects."""
        change = (self._amount(), _now(), self._random.choice(self._skus))
        self._run("UPDATE products SET price = %s, updated = %s WHERE sku = %s", change)

    def describe(self) -> None:
        """Set a new description, or null."""
        self._run("UPDATE products SET description = %s WHERE sku = %s", (self._maybe(self._text()), self._sku()))

    def rename_product(self) -> None:
        """Change the key of a product. The event omits the long columns, and every order line changes by cascade."""
        place = self._random.randrange(len(self._skus))
        renamed = f"{self._word()}-{self._number()}"
        self._run("UPDATE products SET sku = %s WHERE sku = %s", (renamed, self._skus[place]))
        self._skus[place] = renamed

    def renumber_line(self) -> None:
        """Change a part of a composite key."""
        order = self._random.choice(self._orders)
        self._run("UPDATE order_items SET line = line + 10 WHERE order_id = %s AND line < 3000", (order,))

    def cancel_order(self) -> None:
        """Delete an order and its lines."""
        order = self._take(self._orders)
        with self._connection.transaction():
            self._run("DELETE FROM order_items WHERE order_id = %s", (order,))
            self._run("DELETE FROM orders WHERE id = %s", (order,))

    def review(self) -> None:
        """Insert a review, often a long one."""
        number = uuid.UUID(int=self._random.getrandbits(128), version=4)
        row = (number, self._random.choice(self._customers), self._random.randint(1, 5), self._maybe(self._text()), 0)
        self._run("INSERT INTO reviews VALUES (%s, %s, %s, %s, %s)", row)
        self._reviews.append(number)

    def vote(self) -> None:
        """Count a vote for a review; its text does not change."""
        if self._reviews:
            self._run("UPDATE reviews SET helpful = helpful + 1 WHERE id = %s", (self._random.choice(self._reviews),))

    def withdraw_review(self) -> None:
        """Delete a review."""
        if self._reviews:
            self._run("DELETE FROM reviews WHERE id = %s", (self._take(self._reviews),))

    def close(self) -> dict[str, dict[str, Any]]:
        """Insert a last row into each table, after all other changes. Return their keys by table, as in the lake.

        A topic that has this row has all changes of its table. Another topic may still lack some: after an outage of
        the broker, Debezium's producer sends one batch of each topic per request, and the longest backlog ends last.
        """
        for insert in (self.register, self.launch_product, self.order, self.review):
            insert()
        order = self._orders[-1]
        lines = self._keys("SELECT line FROM order_items WHERE order_id = (SELECT max(id) FROM orders) ORDER BY line")
        return {
            "customers": {"id": self._customers[-1]},
            "products": {"sku": self._skus[-1]},
            "orders": {"id": order},
            "order_items": {"order_id": order, "line": lines[-1]},
            "reviews": {"id": str(self._reviews[-1])},
        }

    def _keys(self, query: LiteralString) -> list[Any]:
        return [key for (key,) in self._connection.execute(query)]

    def _run(self, statement: str, values: tuple[Any, ...]) -> None:
        self._connection.execute(statement.encode(), values)

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _sku(self) -> str:
        return self._random.choice(self._skus)

    def _take(self, keys: list[Any]) -> Any:
        place = self._random.randrange(len(keys))
        keys[place], keys[-1] = keys[-1], keys[place]
        return keys.pop()

    def _maybe(self, value: Any) -> Any:
        return None if self._random.random() < 0.1 else value

    def _word(self) -> str:
        return self._random.choice(_WORDS)

    def _words(self, count: int) -> str:
        return " ".join(self._word() for _ in range(count))

    def _text(self) -> str:
        return self._words(self._random.randint(500, 1500))

    def _picture(self) -> bytes:
        return self._random.randbytes(self._random.randint(3000, 9000))

    def _amount(self) -> Decimal:
        return Decimal(self._random.randint(0, 99999)).scaleb(-2)


class Load:
    """Change the shop at a constant rate in a thread; ``stop`` raises an error of the thread.

    None of its transactions runs while a caller holds ``transaction``.
    """

    def __init__(self, shop: Shop, transactions_per_second: int) -> None:
        self.transactions = 0
        self.transaction = threading.Lock()
        self._shop = shop
        self._pause = 1 / transactions_per_second
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current transaction. Raises the error of the thread."""
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while not self._ended.wait(max(0.0, due - time.monotonic())):
                with self.transaction:
                    self._shop.change()
                self.transactions += 1
                due += self._pause
        except psycopg.Error as error:
            self._error = error


def _now() -> datetime:
    return datetime.now(UTC)
