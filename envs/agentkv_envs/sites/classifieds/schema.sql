CREATE TABLE category (id INTEGER PRIMARY KEY, slug TEXT UNIQUE NOT NULL, name TEXT NOT NULL);
CREATE TABLE place (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, distance_km INTEGER NOT NULL, bus TEXT NOT NULL);
CREATE TABLE user (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, email TEXT UNIQUE NOT NULL, password TEXT NOT NULL, phone TEXT NOT NULL,
    place TEXT NOT NULL, joined TEXT NOT NULL, replies_in TEXT NOT NULL, sold INTEGER NOT NULL
);
CREATE TABLE listing (
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, kind TEXT NOT NULL, category_id INTEGER NOT NULL REFERENCES category (id),
    attribute TEXT NOT NULL, value TEXT NOT NULL, extra TEXT NOT NULL, colour TEXT NOT NULL, condition TEXT NOT NULL,
    year INTEGER NOT NULL, price_cents INTEGER NOT NULL, floor_cents INTEGER NOT NULL, place TEXT NOT NULL, pickup_day TEXT NOT NULL,
    user_id INTEGER NOT NULL REFERENCES user (id), created TEXT NOT NULL, description TEXT NOT NULL, pattern TEXT NOT NULL,
    background TEXT NOT NULL, pickup_code TEXT NOT NULL, phone_shown INTEGER NOT NULL DEFAULT 0,
    status TEXT NOT NULL DEFAULT 'active'
);
CREATE INDEX listing_by_category ON listing (category_id, created);
CREATE INDEX listing_by_user ON listing (user_id);
CREATE VIRTUAL TABLE listing_search USING fts5 (title, extra, tokenize = 'porter unicode61');
CREATE TABLE photo (listing_id INTEGER PRIMARY KEY REFERENCES listing (id), filename TEXT NOT NULL, png BLOB NOT NULL);
CREATE TABLE comment (
    id INTEGER PRIMARY KEY, listing_id INTEGER NOT NULL REFERENCES listing (id), user_id INTEGER NOT NULL REFERENCES user (id),
    reply_to INTEGER REFERENCES comment (id), body TEXT NOT NULL, created TEXT NOT NULL
);
CREATE INDEX comment_by_listing ON comment (listing_id);
CREATE TABLE offer (
    id INTEGER PRIMARY KEY, listing_id INTEGER NOT NULL REFERENCES listing (id), user_id INTEGER NOT NULL REFERENCES user (id),
    amount_cents INTEGER NOT NULL, state TEXT NOT NULL, created TEXT NOT NULL
);
CREATE INDEX offer_by_listing ON offer (listing_id);
CREATE TABLE rating (
    id INTEGER PRIMARY KEY, seller_id INTEGER NOT NULL REFERENCES user (id), user_id INTEGER NOT NULL REFERENCES user (id),
    stars INTEGER NOT NULL, body TEXT NOT NULL, created TEXT NOT NULL, UNIQUE (seller_id, user_id)
);
CREATE TABLE thread (
    id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES user (id), listing_id INTEGER NOT NULL REFERENCES listing (id),
    unread INTEGER NOT NULL DEFAULT 0, secret TEXT NOT NULL DEFAULT ''
);
CREATE TABLE message (
    id INTEGER PRIMARY KEY, thread_id INTEGER NOT NULL REFERENCES thread (id), mine INTEGER NOT NULL, body TEXT NOT NULL,
    created TEXT NOT NULL
);
CREATE TABLE favourite (id INTEGER PRIMARY KEY, listing_id INTEGER UNIQUE NOT NULL REFERENCES listing (id));
CREATE TABLE follow (id INTEGER PRIMARY KEY, seller_id INTEGER UNIQUE NOT NULL REFERENCES user (id));
CREATE TABLE saved_search (id INTEGER PRIMARY KEY, name TEXT NOT NULL, query TEXT UNIQUE NOT NULL);
CREATE TABLE report (
    id INTEGER PRIMARY KEY, listing_id INTEGER UNIQUE NOT NULL REFERENCES listing (id), reason TEXT NOT NULL, note TEXT NOT NULL
);
