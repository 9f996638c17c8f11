//! Messages of the Jupyter protocol: the envelope of a header, its parent, metadata and content,
//! signed with the key that only execd and the kernel know.
//!
//! A message whose signature does not fit is not looked into: any process of the sandbox can
//! connect to a kernel's ports, or answer on them once the kernel is gone.

use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::state::{hex, random};

/// The version of the protocol that is spoken.
const VERSION: &str = "5.3";

/// Stands between the routing frames and the envelope.
const DELIMITER: &[u8] = b"<IDS|MSG>";

/// Who execd is to one kernel.
pub(super) struct Session {
    id: String,
    key: String,
}

/// A message ready to be sent, and the id that answers will name.
pub(super) struct Outgoing {
    pub(super) id: String,
    parts: [Vec<u8>; 6],
}

/// A message of the kernel.
pub(super) struct Message {
    pub(super) kind: String,
    /// The id of the request that it answers.
    pub(super) parent: Option<String>,
    /// As it was sent, because an answer carries it back.
    header: Box<RawValue>,
    pub(super) content: Box<RawValue>,
}

/// Why something that arrived is not a message of our kernel.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Rejected {
    #[error("it is not an envelope of the Jupyter protocol")]
    Envelope,
    #[error("its signature does not fit; somebody else sent it")]
    Signature,
    #[error("its header or content is not what the protocol says")]
    Json,
}

#[derive(Serialize)]
struct Header<'a> {
    msg_id: &'a str,
    session: &'a str,
    username: &'a str,
    date: String,
    msg_type: &'a str,
    version: &'a str,
}

#[derive(Deserialize)]
struct TheirHeader {
    msg_type: String,
}

/// A message that answers nothing has an empty object here.
#[derive(Deserialize)]
struct TheirParent {
    msg_id: Option<String>,
}

impl Session {
    pub(super) fn new() -> Self {
        Self {
            id: hex(&random::<16>()),
            key: hex(&random::<32>()),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn request(&self, kind: &str, content: &serde_json::Value) -> Outgoing {
        self.seal(kind, b"{}".to_vec(), content)
    }

    pub(super) fn answer(&self, to: &Message, kind: &str, content: &serde_json::Value) -> Outgoing {
        self.seal(kind, to.header.get().as_bytes().to_vec(), content)
    }

    fn seal(&self, kind: &str, parent: Vec<u8>, content: &serde_json::Value) -> Outgoing {
        let id = hex(&random::<16>());
        let header = Header {
            msg_id: &id,
            session: &self.id,
            username: "execd",
            date: jiff::Timestamp::now().to_string(),
            msg_type: kind,
            version: VERSION,
        };
        let header = serde_json::to_vec(&header).expect("a header of texts is JSON");
        let content = content.to_string().into_bytes();
        let metadata = b"{}".to_vec();
        let signature = self.sign([&header, &parent, &metadata, &content]);
        let parts = [
            DELIMITER.to_vec(),
            signature.into_bytes(),
            header,
            parent,
            metadata,
            content,
        ];
        Outgoing { id, parts }
    }

    /// Checks what arrived and takes it apart.
    pub(super) fn open(&self, parts: &[Vec<u8>]) -> Result<Message, Rejected> {
        let at = parts.iter().position(|part| part == DELIMITER);
        let envelope = at
            .and_then(|at| parts.get(at + 1..at + 6))
            .ok_or(Rejected::Envelope)?;
        let [signature, header, parent, metadata, content] = envelope else {
            return Err(Rejected::Envelope);
        };
        let expected = self.sign([header, parent, metadata, content]);
        if !bool::from(expected.as_bytes().ct_eq(signature)) {
            return Err(Rejected::Signature);
        }
        let kind: TheirHeader = json(header)?;
        // Some kernels write null for "no parent".
        let parent: Option<TheirParent> = json(parent)?;
        Ok(Message {
            kind: kind.msg_type,
            parent: parent.and_then(|parent| parent.msg_id),
            header: json(header)?,
            content: json(content)?,
        })
    }

    fn sign(&self, parts: [&[u8]; 4]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.as_bytes())
            .expect("a key of any length will do");
        for part in parts {
            mac.update(part);
        }
        hex(&mac.finalize().into_bytes())
    }
}

impl Outgoing {
    pub(super) fn parts(&self) -> [&[u8]; 6] {
        self.parts.each_ref().map(Vec::as_slice)
    }
}

fn json<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Rejected> {
    serde_json::from_slice(bytes).map_err(|_| Rejected::Json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sent(session: &Session) -> Vec<Vec<u8>> {
        let outgoing = session.request("status", &json!({"execution_state": "idle"}));
        let mut parts = vec![b"a topic".to_vec()];
        parts.extend(outgoing.parts().map(<[u8]>::to_vec));
        parts
    }

    #[test]
    fn what_was_sealed_opens() {
        let session = Session::new();
        let message = session.open(&sent(&session)).unwrap();
        assert_eq!(message.kind, "status");
        assert_eq!(message.parent, None);
        assert_eq!(message.content.get(), r#"{"execution_state":"idle"}"#);
        let answer = session.answer(&message, "input_reply", &json!({}));
        let parts: Vec<_> = answer.parts().map(<[u8]>::to_vec).into();
        assert!(session.open(&parts).unwrap().parent.is_some());
    }

    #[test]
    fn a_change_anywhere_is_noticed() {
        let session = Session::new();
        for index in 3..=6 {
            let mut parts = sent(&session);
            parts[index].push(b' ');
            assert_eq!(
                session.open(&parts).err(),
                Some(Rejected::Signature),
                "frame {index}"
            );
        }
        let stranger = sent(&Session::new());
        assert_eq!(session.open(&stranger).err(), Some(Rejected::Signature));
        let mut unsigned = sent(&session);
        unsigned[2].clear();
        assert_eq!(session.open(&unsigned).err(), Some(Rejected::Signature));
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        let session = Session::new();
        for parts in [vec![], vec![DELIMITER.to_vec()], vec![b"x".to_vec(); 9]] {
            assert_eq!(session.open(&parts).err(), Some(Rejected::Envelope));
        }
        let mut parts = sent(&session);
        parts[3] = b"not json".to_vec();
        let signature = session.sign([&parts[3], &parts[4], &parts[5], &parts[6]]);
        parts[2] = signature.into_bytes();
        assert_eq!(session.open(&parts).err(), Some(Rejected::Json));
    }

    #[test]
    fn signs_as_every_kernel_does() {
        let session = Session {
            id: String::new(),
            key: "key".to_owned(),
        };
        assert_eq!(
            session.sign([
                b"The quick brown ",
                b"fox jumps ",
                b"over the lazy ",
                b"dog"
            ]),
            "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8",
        );
    }
}
