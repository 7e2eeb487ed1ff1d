CREATE TABLE article (
    id INTEGER PRIMARY KEY, title TEXT UNIQUE NOT NULL, kind TEXT NOT NULL, category TEXT NOT NULL, summary TEXT NOT NULL,
    opening TEXT NOT NULL
);
CREATE INDEX article_by_category ON article (category, title);
CREATE TABLE fact (
    id INTEGER PRIMARY KEY, article_id INTEGER NOT NULL REFERENCES article (id), label TEXT NOT NULL, value TEXT NOT NULL,
    link TEXT NOT NULL, boxed INTEGER NOT NULL
);
CREATE INDEX fact_by_article ON fact (article_id);
CREATE INDEX fact_by_link ON fact (link);
CREATE TABLE section (
    id INTEGER PRIMARY KEY, article_id INTEGER NOT NULL REFERENCES article (id), heading TEXT NOT NULL, body TEXT NOT NULL
);
CREATE INDEX section_by_article ON section (article_id);
CREATE VIRTUAL TABLE article_search USING fts5 (title, summary, body, tokenize = 'porter unicode61');
