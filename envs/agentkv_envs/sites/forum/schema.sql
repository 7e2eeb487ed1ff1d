CREATE TABLE user (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, password TEXT NOT NULL DEFAULT '', biography TEXT NOT NULL, joined TEXT NOT NULL,
    accepts_mail INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE forum (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, title TEXT NOT NULL, about TEXT NOT NULL,
    moderator_id INTEGER NOT NULL REFERENCES user (id), members INTEGER NOT NULL, member_number TEXT NOT NULL, door_word TEXT NOT NULL
);
CREATE TABLE post (
    id INTEGER PRIMARY KEY, forum_id INTEGER NOT NULL REFERENCES forum (id), author_id INTEGER NOT NULL REFERENCES user (id),
    created TEXT NOT NULL, tag TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL, url TEXT NOT NULL, topic TEXT NOT NULL,
    score INTEGER NOT NULL, locked INTEGER NOT NULL DEFAULT 0, edited INTEGER NOT NULL DEFAULT 0,
    picture_kind TEXT NOT NULL DEFAULT '', picture_colour TEXT NOT NULL DEFAULT '', picture_count INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX post_by_forum ON post (forum_id, created);
CREATE INDEX post_by_author ON post (author_id, created);
CREATE VIRTUAL TABLE post_search USING fts5 (title, body, tokenize = 'porter unicode61');
CREATE TABLE comment (
    id INTEGER PRIMARY KEY, post_id INTEGER NOT NULL REFERENCES post (id), parent_id INTEGER REFERENCES comment (id),
    author_id INTEGER NOT NULL REFERENCES user (id), created TEXT NOT NULL, body TEXT NOT NULL, score INTEGER NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0, edited INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX comment_by_post ON comment (post_id);
CREATE INDEX comment_by_author ON comment (author_id, created);
-- The drawn values in the texts, for those who write tasks; no page shows this table.
CREATE TABLE fact (
    id INTEGER PRIMARY KEY, post_id INTEGER NOT NULL REFERENCES post (id), comment_id INTEGER REFERENCES comment (id),
    label TEXT NOT NULL, value TEXT NOT NULL
);
CREATE INDEX fact_by_post ON fact (post_id);
-- What the member has done.
CREATE TABLE post_vote (post_id INTEGER PRIMARY KEY REFERENCES post (id), choice INTEGER NOT NULL);
CREATE TABLE comment_vote (comment_id INTEGER PRIMARY KEY REFERENCES comment (id), choice INTEGER NOT NULL);
CREATE TABLE subscription (forum_id INTEGER PRIMARY KEY REFERENCES forum (id));
CREATE TABLE saved (post_id INTEGER PRIMARY KEY REFERENCES post (id));
CREATE TABLE hidden (post_id INTEGER PRIMARY KEY REFERENCES post (id));
CREATE TABLE blocked (user_id INTEGER PRIMARY KEY REFERENCES user (id));
CREATE TABLE report (post_id INTEGER PRIMARY KEY REFERENCES post (id), reason TEXT NOT NULL);
-- Conversations with one other person each; a message that vanishes is emptied once it was read.
CREATE TABLE thread (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES user (id), unread INTEGER NOT NULL DEFAULT 0);
CREATE TABLE message (
    id INTEGER PRIMARY KEY, thread_id INTEGER NOT NULL REFERENCES thread (id), mine INTEGER NOT NULL, created TEXT NOT NULL,
    body TEXT NOT NULL, vanishes INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX message_by_thread ON message (thread_id);
CREATE TABLE wiki_page (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, forum_id INTEGER NOT NULL REFERENCES forum (id), title TEXT NOT NULL,
    body TEXT NOT NULL, open INTEGER NOT NULL
);
-- The forum's clock stands still but for one minute with everything the member writes.
CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), minutes INTEGER NOT NULL);
INSERT INTO clock VALUES (1, 0);
