//! redis-rs: `cargo run -- PORT`.

use std::collections::HashMap;
use std::error::Error;

use redis::{Client, Commands, Connection, RedisResult};

fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).ok_or("expected a port")?;
    for protocol in ["resp2", "resp3"] {
        smoke(&port, protocol)?;
    }
    println!("redis-rs: ok");
    Ok(())
}

fn smoke(port: &str, protocol: &str) -> Result<(), Box<dyn Error>> {
    let connect = |user: &str| -> RedisResult<Connection> {
        Client::open(format!("redis://{user}127.0.0.1:{port}/?protocol={protocol}"))?.get_connection()
    };
    let mut connection = connect("")?;
    let () = redis::cmd("FLUSHALL").query(&mut connection)?;

    // Strings
    let () = connection.set_ex("a", 1, 100)?;
    assert_eq!(connection.incr::<_, _, i64>("a", 41)?, 42);
    assert_eq!(connection.get::<_, Option<String>>("nothing")?, None);

    // Types
    let () = connection.hset_multiple("h", &[("f", "1"), ("g", "two")])?;
    let fields: HashMap<String, String> = connection.hgetall("h")?;
    assert_eq!(fields, HashMap::from([("f".to_owned(), "1".to_owned()), ("g".to_owned(), "two".to_owned())]));
    let () = connection.zadd("z", "a", 1.5)?;
    assert_eq!(connection.zscore::<_, _, f64>("z", "a")?, 1.5);

    // Pipeline
    let mut pipeline = redis::pipe();
    for number in 0..1000 {
        pipeline.set(format!("p:{number}"), number).ignore();
    }
    let (last,): (i64,) = pipeline.get("p:999").query(&mut connection)?;
    assert_eq!(last, 999);

    // MULTI and WATCH
    let replies: (String, i64) = redis::pipe().atomic().set("m", "x").append("m", "y").query(&mut connection)?;
    assert_eq!(replies, ("OK".to_owned(), 2));
    let mut other = connect("")?;
    let () = redis::cmd("WATCH").arg("m").query(&mut connection)?;
    let () = other.set("m", "changed")?;
    let lost: Option<(String,)> = redis::pipe().atomic().set("m", "lost").query(&mut connection)?;
    assert_eq!(lost, None);

    // Scan
    let found = connection.scan_match::<_, String>("p:*")?.count();
    assert_eq!(found, 1000);

    // Messages
    let mut listener = other.as_pubsub();
    listener.subscribe("news")?;
    while connection.publish::<_, _, i64>("news", "hello")? == 0 {}
    assert_eq!(listener.get_message()?.get_payload::<String>()?, "hello");
    drop(listener);

    // Waiting for an element
    let info: Vec<redis::Value> = redis::cmd("COMMAND").arg("INFO").arg("BLPOP").query(&mut connection)?;
    if info[0] != redis::Value::Nil {
        let mut waiter = connect("")?;
        let popped = std::thread::spawn(move || waiter.blpop::<_, (String, String)>("queue", 10.0));
        let () = connection.rpush("queue", "job")?;
        assert_eq!(popped.join().expect("no panic")?, ("queue".to_owned(), "job".to_owned()));
    }

    // A user with a password
    let rules = ["on", ">secret", "~c:*", "+@all"];
    let () = redis::cmd("ACL").arg("SETUSER").arg("clerk").arg(&rules).query(&mut connection)?;
    let mut clerk = connect("clerk:secret@")?;
    let () = clerk.set("c:1", "x")?;
    let refused = clerk.get::<_, Option<String>>("a").expect_err("no right");
    assert_eq!(refused.code(), Some("NOPERM"));
    Ok(())
}
