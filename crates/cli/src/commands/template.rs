//! `osb template …`.

use api::query::QueryWriter;
use api::template::{CreateTemplateRequest, TemplateFormat, TemplateReadiness};

use super::{DONE, Outcome, request_file};
use crate::app::App;
use crate::args::Pair;
use crate::args::sandbox::{Template, TemplateCreate};
use crate::error::Error;
use crate::model;
use crate::output::{Format, Message, Record, Value};

const COLUMNS: [&str; 6] = [
    "template_id",
    "status",
    "image",
    "format",
    "created_at",
    "updated_at",
];

pub(super) async fn run(app: &App, command: Template) -> Outcome {
    let printer = app.printer();
    let client = app.client()?;
    let is_data = matches!(printer.format(), Format::Json | Format::Yaml);
    match command {
        Template::Create(args) => {
            let request = request(&args)?;
            let info = client.create_template(&request).await?;
            let mut record = Record::new()
                .with("template_id", &info.template_id)
                .with("image", &info.image)
                .with("status", model::snake(&info.status.phase));
            if let Some(path) = &args.file {
                record.set("request_file", path.display().to_string());
            }
            printer.done("Template created", &record)?;
        }
        Template::Get { template_id } => {
            let record = model::template(&client.get_template(&template_id).await?);
            let record = if is_data { record } else { readable(record) };
            printer.record("Template", &record)?;
        }
        Template::List {
            metadata,
            page,
            page_size,
        } => {
            let number = |number: Option<u32>| number.map(|number| number.to_string());
            let filter = Pair::map(&metadata).map(|pairs| {
                let encode =
                    |writer: QueryWriter, (key, value): (&String, &String)| writer.pair(key, value);
                pairs.iter().fold(QueryWriter::new(), encode).finish()
            });
            let query = QueryWriter::new()
                .optional("metadata", filter.as_deref())
                .optional("page", number(page).as_deref())
                .optional("pageSize", number(page_size).as_deref());
            let found = client.list_templates(&query.finish()).await?;
            let rows: Vec<Record> = found
                .items
                .iter()
                .map(model::template)
                .map(|record| if is_data { record } else { model::flat(record) })
                .collect();
            printer.page(
                "Templates",
                &COLUMNS,
                &rows,
                model::pagination(&found.pagination),
            )?;
        }
        Template::Delete { template_id } => {
            client.delete_template(&template_id).await?;
            printer.message(Message::Ok, &format!("Template deleted: {template_id}"))?;
        }
    }
    Ok(DONE)
}

fn request(args: &TemplateCreate) -> Result<CreateTemplateRequest, Error> {
    if let Some(path) = &args.file {
        request_file::check_alone(&[
            (args.image.is_some(), "--image"),
            (args.publish.is_some(), "--publish"),
            (!args.resource.is_empty(), "--resource"),
            (!args.entrypoint.is_empty(), "--entrypoint"),
            (!args.env.is_empty(), "--env"),
            (!args.metadata.is_empty(), "--metadata"),
            (args.format.is_some(), "--format"),
            (args.readiness_probe.is_some(), "--readiness-probe"),
            (args.warmup_seconds.is_some(), "--warmup-seconds"),
        ])?;
        return request_file::template(path);
    }
    let (Some(image), Some(publish)) = (&args.image, &args.publish) else {
        return Err(Error::Usage(
            "a template needs --image and --publish, or a whole request with --file".to_owned(),
        ));
    };
    let has_readiness = args.readiness_probe.is_some() || args.warmup_seconds.is_some();
    Ok(CreateTemplateRequest {
        image: image.clone(),
        publish: publish.clone(),
        format: match args.format.as_deref() {
            Some("native") => TemplateFormat::Native,
            _ => TemplateFormat::Overlaybd,
        },
        resource_limits: Pair::map(&args.resource),
        entrypoint: (!args.entrypoint.is_empty()).then(|| args.entrypoint.clone()),
        env: Pair::map(&args.env),
        metadata: Pair::map(&args.metadata),
        readiness: has_readiness.then(|| TemplateReadiness {
            probe: args.readiness_probe.clone(),
            warmup_seconds: args.warmup_seconds.map(u64::from),
        }),
    })
}

/// With the readiness as one word.
fn readable(record: Record) -> Record {
    let mut record = model::flat(record);
    let readiness = match record.get("readiness") {
        Some(Value::Record(parts)) => parts.clone(),
        _ => return record,
    };
    let probe = readiness.get("probe").map(Value::cell);
    let warmup = readiness
        .get("warmup_seconds")
        .map(|seconds| format!("warmup={}s", seconds.cell()));
    let text: Vec<String> = [probe, warmup].into_iter().flatten().collect();
    record.set("readiness", text.join(" "));
    record
}
