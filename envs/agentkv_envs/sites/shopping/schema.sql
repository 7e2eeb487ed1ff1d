CREATE TABLE category (id INTEGER PRIMARY KEY, slug TEXT UNIQUE NOT NULL, name TEXT NOT NULL, blurb TEXT NOT NULL);
CREATE TABLE product (
    id INTEGER PRIMARY KEY, sku TEXT UNIQUE NOT NULL, slug TEXT UNIQUE NOT NULL, name TEXT UNIQUE NOT NULL,
    kind TEXT NOT NULL, category_id INTEGER NOT NULL REFERENCES category (id), brand TEXT NOT NULL, colour TEXT NOT NULL,
    variant TEXT NOT NULL, material TEXT NOT NULL, sizes TEXT NOT NULL, price_cents INTEGER NOT NULL, stock INTEGER NOT NULL,
    weight_g INTEGER NOT NULL, warranty_years INTEGER NOT NULL, description TEXT NOT NULL, popularity INTEGER NOT NULL
);
CREATE INDEX product_by_category ON product (category_id, popularity);
CREATE VIRTUAL TABLE product_search USING fts5 (name, extra, tokenize = 'porter unicode61');
CREATE TABLE review (
    id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product (id), nickname TEXT NOT NULL,
    rating INTEGER NOT NULL, title TEXT NOT NULL, detail TEXT NOT NULL, created TEXT NOT NULL
);
CREATE INDEX review_by_product ON review (product_id);
CREATE TABLE customer (
    id INTEGER PRIMARY KEY, email TEXT UNIQUE NOT NULL, password TEXT NOT NULL, firstname TEXT NOT NULL, lastname TEXT NOT NULL,
    street TEXT NOT NULL, city TEXT NOT NULL, postcode TEXT NOT NULL, country TEXT NOT NULL, telephone TEXT NOT NULL,
    points INTEGER NOT NULL, reward_code TEXT NOT NULL, reward_shown INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE session (token TEXT PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer (id));
CREATE TABLE cart_item (
    id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product (id), size TEXT NOT NULL, qty INTEGER NOT NULL,
    UNIQUE (product_id, size)
);
CREATE TABLE wishlist_item (id INTEGER PRIMARY KEY, product_id INTEGER UNIQUE NOT NULL REFERENCES product (id));
CREATE TABLE coupon (code TEXT PRIMARY KEY, percent INTEGER NOT NULL, label TEXT NOT NULL, once INTEGER NOT NULL DEFAULT 0);
CREATE TABLE cart (id INTEGER PRIMARY KEY CHECK (id = 1), coupon TEXT, gift_note TEXT NOT NULL DEFAULT '');
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, number TEXT UNIQUE NOT NULL, created TEXT NOT NULL, status TEXT NOT NULL, shipping TEXT NOT NULL,
    shipping_cents INTEGER NOT NULL, coupon TEXT, discount_cents INTEGER NOT NULL, total_cents INTEGER NOT NULL,
    recipient TEXT NOT NULL, address TEXT NOT NULL, telephone TEXT NOT NULL, gift_note TEXT NOT NULL DEFAULT '',
    tracking TEXT NOT NULL DEFAULT ''
);
CREATE TABLE order_item (
    id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES orders (id), product_id INTEGER NOT NULL REFERENCES product (id),
    size TEXT NOT NULL, qty INTEGER NOT NULL, price_cents INTEGER NOT NULL
);
CREATE TABLE message (id INTEGER PRIMARY KEY, name TEXT NOT NULL, topic TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE flash (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL, link TEXT NOT NULL, link_text TEXT NOT NULL);
