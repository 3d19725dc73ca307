SELECT l.a, r.s FROM t l JOIN t r ON l.a = r.a AND r.at BETWEEN l.at AND l.at + INTERVAL '1' MINUTE
