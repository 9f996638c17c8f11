//! First bytes of connections, honest and not.

use proptest::prelude::*;

use super::*;

/// A ClientHello with these extensions, in records of at most `piece` bytes.
fn hello(extensions: &[(u16, Vec<u8>)], piece: usize) -> Vec<u8> {
    let vector = |bytes: &[u8]| {
        let mut all = u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        all.extend(bytes);
        all
    };
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(vector(&[0x13, 0x01]));
    body.extend([1, 0]);
    let mut all = Vec::new();
    for (kind, data) in extensions {
        all.extend(kind.to_be_bytes());
        all.extend(vector(data));
    }
    body.extend(vector(&all));
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let mut message = vec![1, length[1], length[2], length[3]];
    message.extend(body);
    let mut records = Vec::new();
    for part in message.chunks(piece) {
        records.extend([22, 3, 1]);
        records.extend(vector(part));
    }
    records
}

fn server_name(name: &str) -> (u16, Vec<u8>) {
    let length = u16::try_from(name.len()).unwrap();
    let mut data = (length + 3).to_be_bytes().to_vec();
    data.push(0);
    data.extend(length.to_be_bytes());
    data.extend(name.as_bytes());
    (0, data)
}

fn tls(name: &str) -> First {
    First::Tls(Some(name.to_owned()))
}

#[test]
fn the_name_of_a_hello_is_found_however_it_is_cut() {
    let whole = hello(&[(10, vec![1, 2]), server_name("Www.Example.com")], 1 << 14);
    assert_eq!(first(&whole), tls("www.example.com"));
    for piece in 1..40 {
        let cut = hello(&[server_name("www.example.com")], piece);
        assert_eq!(first(&cut), tls("www.example.com"), "records of {piece}");
        for end in 0..cut.len() {
            assert_eq!(first(&cut[..end]), First::Unfinished, "{end} bytes of it");
        }
    }
}

#[test]
fn hellos_that_hide_their_name_are_refused() {
    assert_eq!(first(&hello(&[], 1 << 14)), First::Tls(None));
    let names = [server_name("a.example"), (0xfe0d, vec![0])];
    assert!(matches!(first(&hello(&names, 1 << 14)), First::Refused(_)));
    let two = [server_name("a.example"), server_name("b.example")];
    assert!(matches!(first(&hello(&two, 1 << 14)), First::Refused(_)));
    for bad in ["192.0.2.1", "a b", "a..b", "", "a\0.example"] {
        let refused = first(&hello(&[server_name(bad)], 1 << 14));
        assert!(matches!(refused, First::Refused(_)), "{bad}");
    }
}

fn http(text: &str) -> First {
    first(text.as_bytes())
}

fn host_of(text: &str) -> Option<String> {
    match http(text) {
        First::Http(head) => head.host,
        other => panic!("{text:?} is {other:?}"),
    }
}

#[test]
fn the_host_of_a_request_is_found() {
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(
        host_of("GET / HTTP/1.1\r\nHost: A.example\r\n\r\n"),
        some("a.example")
    );
    assert_eq!(
        host_of("GET / HTTP/1.1\r\nhost: a.example:8080\r\n\r\nbody"),
        some("a.example")
    );
    assert_eq!(
        host_of("\r\nGET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        some("a.example")
    );
    assert_eq!(host_of("GET / HTTP/1.0\r\n\r\n"), None);
    assert_eq!(host_of("GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n"), None);
    assert_eq!(http("GET / HTTP/1.1\r\nHost: a.exam"), First::Unfinished);
}

#[test]
fn requests_that_could_mean_two_hosts_are_refused() {
    for text in [
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
        "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n b.example\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        assert!(
            matches!(http(text), First::Refused(_)),
            "{text:?}: {:?}",
            http(text)
        );
    }
}

#[test]
fn a_request_is_sent_on_as_the_only_one_of_its_connection() {
    let text = "POST /x HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive\r\nX: y\r\nContent-Length: 2\r\n\r\nhi";
    let First::Http(head) = http(text) else {
        panic!("it is a request");
    };
    assert_eq!(&text[head.length..], "hi");
    let sent = String::from_utf8(head.sent_on).unwrap();
    assert_eq!(
        sent,
        "POST /x HTTP/1.1\r\nHost: a.example\r\nX: y\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn other_protocols_are_told_apart() {
    assert_eq!(http("EHLO mail.example\r\n"), First::Other);
    assert_eq!(http("SSH-2.0-OpenSSH_9.2\r\n"), First::Other);
    assert_eq!(first(&[0, 0, 0, 8, 4, 210, 22, 47]), First::Other);
    assert_eq!(first(b""), First::Unfinished);
}

proptest! {
    #[test]
    fn nothing_breaks_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300), is_tls in any::<bool>()) {
        let mut bytes = bytes;
        if is_tls {
            bytes.splice(0..0, [22, 3, 1, 0, 40, 1, 0, 0, 36]);
        }
        let _ = first(&bytes);
    }

    /// Whatever is in front, two readings of a request never name different hosts.
    #[test]
    fn a_changed_byte_never_makes_another_host(at in 0_usize..60, byte in any::<u8>()) {
        let mut text = b"GET / HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nX-A: bb\r\n\r\n".to_vec();
        let length = text.len();
        text[at % length] = byte;
        if let First::Http(head) = first(&text) {
            let sent = String::from_utf8_lossy(&head.sent_on).to_lowercase();
            let hosts = sent.matches("\r\nhost: ").count();
            prop_assert!(hosts <= 1);
            prop_assert_eq!(head.host.is_some() && hosts == 0, false);
        }
    }
}
