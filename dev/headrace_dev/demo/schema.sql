-- A small shop. What makes it a test of a change stream: long texts and pictures that PostgreSQL stores out of line and
-- leaves out of update events (TOAST), a composite key, keys that change and cascade, arrays, JSON, exact numbers.

CREATE TABLE customers (
    id          integer PRIMARY KEY,
    name        text NOT NULL,
    email       text,
    balance     numeric(12, 2) NOT NULL DEFAULT 0,
    vip         boolean NOT NULL DEFAULT false,
    preferences jsonb,
    since       timestamptz NOT NULL
);

CREATE TABLE products (
    sku         text PRIMARY KEY,
    title       text NOT NULL,
    price       numeric(10, 2) NOT NULL,
    weight      double precision,
    tags        text[],
    description text,   -- long: travels only when it changes
    picture     bytea,  -- long: travels only when it changes
    updated     timestamp NOT NULL
);
ALTER TABLE products ALTER COLUMN description SET STORAGE EXTERNAL, ALTER COLUMN picture SET STORAGE EXTERNAL;

CREATE TABLE orders (
    id          bigint PRIMARY KEY,
    customer_id integer NOT NULL,
    state       text NOT NULL,
    placed      timestamptz NOT NULL,
    due         date,
    note        text
);

CREATE TABLE order_items (
    order_id    bigint NOT NULL,
    line        smallint NOT NULL,
    sku         text NOT NULL REFERENCES products ON UPDATE CASCADE,
    quantity    integer NOT NULL,
    unit_price  numeric(10, 2) NOT NULL,
    PRIMARY KEY (order_id, line)
);
CREATE INDEX ON order_items (sku);

CREATE TABLE reviews (
    id          uuid PRIMARY KEY,
    customer_id integer NOT NULL,
    stars       smallint NOT NULL,
    body        text,   -- long: travels only when it changes
    helpful     integer NOT NULL DEFAULT 0
);
ALTER TABLE reviews ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE debezium_signal (   -- where the source connector reads its signals
    id          varchar(42) PRIMARY KEY,
    type        varchar(32) NOT NULL,
    data        varchar(2048)
);
