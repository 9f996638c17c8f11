//! A loopback proxy between a client and a registry: counts what passes, cuts it off, and lets
//! the registry behind it be exchanged while its own address stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    backend: AtomicU16,
    /// Bytes that came from the registry.
    passed: AtomicU64,
    /// Every connection ends once this many bytes have passed.
    cut_at: AtomicU64,
    cut: watch::Sender<bool>,
    /// While true nothing comes from the registry.
    held: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            backend: AtomicU16::new(port),
            passed: AtomicU64::new(0),
            cut_at: AtomicU64::new(u64::MAX),
            cut: watch::Sender::new(false),
            held: watch::Sender::new(false),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self {
            port: own,
            shared,
            task,
        }
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Bytes that came from the registry so far.
    pub(crate) fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::SeqCst)
    }

    /// Ends every connection, now and later, once this many more bytes have come.
    pub(crate) fn cut_after(&self, bytes: u64) {
        self.shared
            .cut_at
            .store(self.passed() + bytes, Ordering::SeqCst);
    }

    /// Waits until that has happened.
    pub(crate) async fn has_cut(&self) {
        self.shared
            .cut
            .subscribe()
            .wait_for(|cut| *cut)
            .await
            .expect("the proxy lives");
    }

    /// Lets everything pass again, to this registry.
    pub(crate) fn mend(&self, port: u16) {
        self.shared.backend.store(port, Ordering::SeqCst);
        self.shared.cut_at.store(u64::MAX, Ordering::SeqCst);
        self.shared.cut.send_replace(false);
    }

    /// Stops or lets go what comes from the registry.
    pub(crate) fn hold(&self, is_held: bool) {
        self.shared.held.send_replace(is_held);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(pass(client, Arc::clone(&shared)));
    }
}

async fn pass(client: TcpStream, shared: Arc<Shared>) {
    if *shared.cut.borrow() {
        return;
    }
    let backend = shared.backend.load(Ordering::SeqCst);
    let Ok(registry) = TcpStream::connect(("127.0.0.1", backend)).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_registry, mut to_registry) = registry.into_split();
    let up = tokio::io::copy(&mut from_client, &mut to_registry);
    let down = async {
        let mut buffer = vec![0; 16 << 10];
        let mut held = shared.held.subscribe();
        while let Ok(count @ 1..) = from_registry.read(&mut buffer).await {
            let _ = held.wait_for(|held| !held).await;
            let passed = shared.passed.fetch_add(count as u64, Ordering::SeqCst) + count as u64;
            if passed > shared.cut_at.load(Ordering::SeqCst) {
                shared.cut.send_replace(true);
                return;
            }
            if to_client.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    let mut cut = shared.cut.subscribe();
    tokio::select! {
        _ = up => {}
        () = down => {}
        _ = cut.wait_for(|cut| *cut) => {}
    }
}
