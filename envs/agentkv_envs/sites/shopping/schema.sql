CREATE TABLE category (id INTEGER PRIMARY KEY, slug TEXT UNIQUE NOT NULL, name TEXT NOT NULL, blurb TEXT NOT NULL);
-- A product with `colours` or `sizes` (comma lists) has variants: its price is the lowest of theirs, its stock their sum.
CREATE TABLE product (
    id INTEGER PRIMARY KEY, sku TEXT UNIQUE NOT NULL, slug TEXT UNIQUE NOT NULL, name TEXT UNIQUE NOT NULL,
    kind TEXT NOT NULL, category_id INTEGER NOT NULL REFERENCES category (id), brand TEXT NOT NULL, colour TEXT NOT NULL,
    variant TEXT NOT NULL, material TEXT NOT NULL, sizes TEXT NOT NULL, price_cents INTEGER NOT NULL, stock INTEGER NOT NULL,
    weight_g INTEGER NOT NULL, warranty_years INTEGER NOT NULL, description TEXT NOT NULL, popularity INTEGER NOT NULL,
    colours TEXT NOT NULL, option_label TEXT NOT NULL, added TEXT NOT NULL, restock TEXT NOT NULL
);
CREATE INDEX product_by_category ON product (category_id, popularity);
CREATE TABLE variant (
    id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product (id), colour TEXT NOT NULL, size TEXT NOT NULL,
    price_cents INTEGER NOT NULL, stock INTEGER NOT NULL, UNIQUE (product_id, colour, size)
);
CREATE VIRTUAL TABLE product_search USING fts5 (name, extra, tokenize = 'porter unicode61');
-- `photo` is an index into images.GROUNDS; `mine` and `voted` are about the customer of the episode.
CREATE TABLE review (
    id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product (id), nickname TEXT NOT NULL,
    rating INTEGER NOT NULL, title TEXT NOT NULL, detail TEXT NOT NULL, created TEXT NOT NULL,
    helpful INTEGER NOT NULL DEFAULT 0, photo INTEGER, mine INTEGER NOT NULL DEFAULT 0, voted INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX review_by_product ON review (product_id);
CREATE TABLE question (
    id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product (id), nickname TEXT NOT NULL,
    text TEXT NOT NULL, created TEXT NOT NULL, mine INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX question_by_product ON question (product_id);
CREATE TABLE answer (
    id INTEGER PRIMARY KEY, question_id INTEGER NOT NULL REFERENCES question (id), nickname TEXT NOT NULL,
    text TEXT NOT NULL, staff INTEGER NOT NULL DEFAULT 0, mine INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX answer_by_question ON answer (question_id);
-- The customer's own address is the default one; `address` holds the others of the address book.
CREATE TABLE customer (
    id INTEGER PRIMARY KEY, email TEXT UNIQUE NOT NULL, password TEXT NOT NULL, firstname TEXT NOT NULL, lastname TEXT NOT NULL,
    street TEXT NOT NULL, city TEXT NOT NULL, postcode TEXT NOT NULL, country TEXT NOT NULL, telephone TEXT NOT NULL,
    points INTEGER NOT NULL, reward_code TEXT NOT NULL, reward_shown INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE address (
    id INTEGER PRIMARY KEY, label TEXT UNIQUE NOT NULL, firstname TEXT NOT NULL, lastname TEXT NOT NULL, street TEXT NOT NULL,
    city TEXT NOT NULL, postcode TEXT NOT NULL, country TEXT NOT NULL, telephone TEXT NOT NULL
);
-- `size` is the chosen option as text ("M", "Blue", "Blue, M"), "" where there is none to choose.
CREATE TABLE cart_item (
    id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product (id), variant_id INTEGER REFERENCES variant (id),
    size TEXT NOT NULL, qty INTEGER NOT NULL, UNIQUE (product_id, size)
);
CREATE TABLE wishlist_item (id INTEGER PRIMARY KEY, product_id INTEGER UNIQUE NOT NULL REFERENCES product (id));
CREATE TABLE compare_item (id INTEGER PRIMARY KEY, product_id INTEGER UNIQUE NOT NULL REFERENCES product (id));
CREATE TABLE stock_notice (
    id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product (id), size TEXT NOT NULL, email TEXT NOT NULL,
    UNIQUE (product_id, size)
);
-- Off an order: `percent` of, or `amount_cents` from, the items of `category_id` (NULL: all), if they are worth
-- `minimum_cents`, until `ends` (ISO date, "" for ever); `once`: for one order; `listed`: on the page Deals.
CREATE TABLE coupon (
    code TEXT PRIMARY KEY, label TEXT NOT NULL, percent INTEGER NOT NULL DEFAULT 0, amount_cents INTEGER NOT NULL DEFAULT 0,
    minimum_cents INTEGER NOT NULL DEFAULT 0, category_id INTEGER REFERENCES category (id), ends TEXT NOT NULL DEFAULT '',
    once INTEGER NOT NULL DEFAULT 0, listed INTEGER NOT NULL DEFAULT 0, used INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE cart (id INTEGER PRIMARY KEY CHECK (id = 1), coupon TEXT);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, number TEXT UNIQUE NOT NULL, created TEXT NOT NULL, status TEXT NOT NULL, shipping TEXT NOT NULL,
    shipping_cents INTEGER NOT NULL, coupon TEXT, discount_cents INTEGER NOT NULL, total_cents INTEGER NOT NULL,
    recipient TEXT NOT NULL, address TEXT NOT NULL, telephone TEXT NOT NULL, gift_note TEXT NOT NULL DEFAULT '',
    tracking TEXT NOT NULL DEFAULT ''
);
CREATE TABLE order_item (
    id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES orders (id), product_id INTEGER NOT NULL REFERENCES product (id),
    variant_id INTEGER REFERENCES variant (id), size TEXT NOT NULL, qty INTEGER NOT NULL, price_cents INTEGER NOT NULL
);
CREATE TABLE item_return (
    id INTEGER PRIMARY KEY, number TEXT UNIQUE NOT NULL, order_item_id INTEGER UNIQUE NOT NULL REFERENCES order_item (id),
    reason TEXT NOT NULL, resolution TEXT NOT NULL, status TEXT NOT NULL, created TEXT NOT NULL
);
-- The drop-off PINs of the returns to come, by return id.
CREATE TABLE dropoff (return_id INTEGER PRIMARY KEY, pin TEXT NOT NULL);
-- Days from the warehouse to postcodes that begin with `digit`; express is not offered where it is 0.
CREATE TABLE delivery_region (digit TEXT PRIMARY KEY, standard_days INTEGER NOT NULL, express_days INTEGER NOT NULL);
CREATE TABLE newsletter (id INTEGER PRIMARY KEY, email TEXT UNIQUE NOT NULL, topic TEXT NOT NULL, frequency TEXT NOT NULL);
-- `once`: the text is told when the message is opened, and deleted.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY, sender TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL, received TEXT NOT NULL,
    once INTEGER NOT NULL, opened INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE message (id INTEGER PRIMARY KEY, name TEXT NOT NULL, topic TEXT NOT NULL, body TEXT NOT NULL);
