INSERT INTO events
SELECT event_type, person, auction, bid FROM datagen;
