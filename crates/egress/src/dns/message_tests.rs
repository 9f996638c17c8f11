//! DNS messages: what is understood, and that nothing breaks on what is not.

use proptest::prelude::*;

use super::*;

const NAME: &str = "www.example.com";

fn query(bytes: &[u8]) -> Query {
    read_query(bytes).unwrap().unwrap()
}

/// An answer with records of an owner, a type and data.
fn answer(records: &[(&str, u16, Vec<u8>)]) -> Vec<u8> {
    let asked = write_query(7, NAME, TYPE_A).unwrap();
    let mut message = query(&asked).header(NO_ERROR);
    message[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
    for (owner, kind, data) in records {
        message.extend(wire(owner));
        message.extend(kind.to_be_bytes());
        message.extend(CLASS_IN.to_be_bytes());
        message.extend(60_u32.to_be_bytes());
        message.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        message.extend(data);
    }
    message
}

fn wire(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

#[test]
fn a_question_is_read_and_answered() {
    let mut asked = write_query(0x1234, NAME, TYPE_A).unwrap();
    asked[13] = b'W';
    let query = query(&asked);
    assert_eq!((query.name.as_str(), query.kind), (NAME, TYPE_A));
    assert_eq!(query.udp_bytes, Some(UDP_BYTES_OURS));
    let addresses = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    let reply = query.reply(&Reply {
        code: NO_ERROR,
        addresses: &addresses,
        ttl: 60,
        is_filtered: false,
    });
    assert_eq!(reply[13], b'W', "the question is sent back as it came");
    let found = read_answer(&reply, 0x1234, NAME, TYPE_A).unwrap();
    assert_eq!((found.addresses, found.ttl), (addresses.to_vec(), 60));
}

#[test]
fn aliases_are_followed_and_strangers_are_not_believed() {
    let v4 = |last: u8| vec![192, 0, 2, last];
    let message = answer(&[
        ("evil.example", TYPE_A, v4(66)),
        (NAME, TYPE_CNAME, wire("edge.example.net")),
        ("edge.example.net", TYPE_CNAME, wire("host.example.net")),
        ("host.example.net", TYPE_A, v4(1)),
        (NAME, TYPE_A, v4(67)),
    ]);
    let found = read_answer(&message, 7, NAME, TYPE_A).unwrap();
    assert_eq!(found.aliases, ["edge.example.net", "host.example.net"]);
    assert_eq!(found.addresses, [IpAddr::from([192, 0, 2, 1])]);
}

#[test]
fn answers_to_other_questions_are_none() {
    let message = answer(&[(NAME, TYPE_A, vec![192, 0, 2, 1])]);
    assert!(read_answer(&message, 7, NAME, TYPE_A).is_some());
    assert!(
        read_answer(&message, 8, NAME, TYPE_A).is_none(),
        "another id"
    );
    assert!(read_answer(&message, 7, "example.com", TYPE_A).is_none());
    assert!(read_answer(&message, 7, NAME, TYPE_AAAA).is_none());
    let circle = answer(&[
        (NAME, TYPE_CNAME, wire("a.b")),
        ("a.b", TYPE_CNAME, wire(NAME)),
        (NAME, TYPE_A, vec![1, 1, 1, 1]),
    ]);
    assert!(
        read_answer(&circle, 7, NAME, TYPE_A).is_none(),
        "aliases in a circle"
    );
}

#[test]
fn what_is_no_question_is_refused() {
    let asked = write_query(1, NAME, TYPE_A).unwrap();
    let mut two = asked.clone();
    two[5] = 2;
    assert_eq!(read_query(&two).unwrap().unwrap_err().code, FORMAT_ERROR);
    let mut answer = asked.clone();
    answer[2] |= 0x80;
    assert!(read_query(&answer).is_none(), "an answer is not answered");
    let mut dotted = asked.clone();
    dotted[14] = b'.';
    assert_eq!(
        read_query(&dotted).unwrap().unwrap_err().code,
        FORMAT_ERROR,
        "a dot within a label"
    );
    let mut chaos = asked;
    let class = 12 + NAME.len() + 2 + 3;
    chaos[class] = 3;
    assert_eq!(
        read_query(&chaos).unwrap().unwrap_err().code,
        NOT_IMPLEMENTED
    );
    assert!(read_query(&[0; 5]).is_none());
}

proptest! {
    #[test]
    fn nothing_breaks_the_readers(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_query(&bytes);
        let _ = read_answer(&bytes, 7, NAME, TYPE_A);
    }

    #[test]
    fn a_broken_answer_breaks_nothing(at in 0_usize..120, byte in any::<u8>()) {
        let mut message = answer(&[(NAME, TYPE_CNAME, wire("a.example")), ("a.example", TYPE_A, vec![192, 0, 2, 1])]);
        let length = message.len();
        message[at % length] = byte;
        let _ = read_answer(&message, 7, NAME, TYPE_A);
    }
}
