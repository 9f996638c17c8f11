//! Code that remembers.

use std::sync::Arc;
use std::time::Duration;

use opensandbox::{Ending, Event, ResultKind};

use crate::sandbox;
use crate::server::Server;

pub(crate) async fn contexts_remember(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let code = sandbox.code();
    code.run("x = 20").await.unwrap();
    let output = code.run("print('said', end=''); x + 1").language("python");
    let output = output.await.unwrap();
    assert_eq!(
        (output.stdout.as_str(), output.text()),
        ("said", Some("21"))
    );
    assert!(output.is_success() && output.count.is_some());

    let context = code.create_context("python", Some("/tmp")).await.unwrap();
    let id = context.id.as_str();
    assert_eq!(code.get_context(id).await.unwrap().id, context.id);
    let unset = code.run("x").context(id).await.unwrap();
    assert_eq!(unset.error.as_ref().unwrap().ename, "NameError");
    assert_eq!(unset.ending(), Ending::Failed);
    let listed = code.list_contexts(Some("python")).await.unwrap();
    assert!(listed.iter().any(|found| found.id == context.id));

    let late = code.run("import time; time.sleep(600)").context(id);
    let late = late.timeout(Duration::from_millis(100)).await.unwrap();
    assert!(!late.is_success());
    let mut events = code
        .run("print('on', flush=True); import time; time.sleep(600)")
        .context(id)
        .stream()
        .await
        .unwrap();
    while events.next().await.unwrap().unwrap() != Event::Stdout("on\n".to_owned()) {}
    code.interrupt(id).await.unwrap();
    let output = events.output().await.unwrap();
    assert_eq!(output.error.unwrap().ename, "KeyboardInterrupt");
    code.delete_context(id).await.unwrap();
    assert!(code.get_context(id).await.unwrap_err().is_not_found());
    code.delete_contexts("python").await.unwrap();
    assert!(code.list_contexts(Some("python")).await.unwrap().is_empty());
    sandbox.kill().await.unwrap();
}

pub(crate) async fn results_in_every_form(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let text =
        "class P:\n def _repr_html_(self): return '<b>'\n def __repr__(self): return 'P'\nP()";
    let output = sandbox.code().run(text).await.unwrap();
    let result = &output.results[0];
    assert_eq!(
        (result.text(), result.get("text/html")),
        (Some("P"), Some("<b>"))
    );
    assert_eq!(result.get("image/png"), None);
    assert_eq!(result.kind(), ResultKind::Text);

    let text = "class F:\n def _repr_png_(self): return bytes([137, 80, 78, 71])\nF()";
    let figure = sandbox.code().run(text).await.unwrap().results[0].figure();
    assert_eq!(figure.unwrap().bytes, b"\x89PNG");
    let text = "class T:\n def _repr_html_(self): return '<table><tr><th>a</th><td>1</td></tr></table>'\nT()";
    let table = sandbox.code().run(text).await.unwrap().results[0].table();
    assert_eq!(table.unwrap(), [["a", "1"]]);
    sandbox.kill().await.unwrap();
}
