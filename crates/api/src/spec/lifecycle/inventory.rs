//! Images and volumes that the backend keeps: ours, not part of the published protocol.

use super::super::operation::{BYTES, Content, Operation, STREAM, Shape};

fn new(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Operation {
    Operation::new(method, path, id, summary)
        .extension()
        .errors(&[501, 504])
}

pub(super) fn images() -> Vec<Operation> {
    const EVENT: Content = Content {
        media: STREAM,
        shape: Shape::Named("PullEvent"),
    };
    vec![
        new(
            "GET",
            "/images",
            "listImages",
            "Lists images that are here.",
        )
        .answers_json(200, "The images.", Shape::Named("ListImagesResponse")),
        new(
            "POST",
            "/images/pull",
            "pullImage",
            "Brings an image here, or its newest state; closing the connection stops it.",
        )
        .audited("image.pull")
        .takes(Shape::Named("PullImageRequest"))
        .answers_with(200, "How it goes, up to its end.", &[EVENT])
        .errors(&[403, 404, 409]),
        new(
            "POST",
            "/images/prune",
            "pruneImages",
            "Removes images without a name and layers without an image.",
        )
        .audited("image.prune")
        .answers_json(200, "What went.", Shape::Named("PruneImagesResponse")),
        new(
            "POST",
            "/images/tag",
            "tagImage",
            "Gives an image that is here another name, which means exactly this image from now on.",
        )
        .audited("image.tag")
        .required_query("reference", Shape::Text, "The image, by name or id.")
        .required_query("name", Shape::Text, "The name it gets as well.")
        .answers_json(200, "The image, with all its names.", Shape::Named("Image"))
        .errors(&[404, 409]),
        new(
            "DELETE",
            "/images/{reference}",
            "deleteImage",
            "Takes a name from an image, or, given an id, all of them.",
        )
        .audited("image.delete")
        .taking_rest()
        .answers(204, "It is taken.")
        .errors(&[404, 409]),
    ]
}

/// Images as files that go over the wire.
pub(super) fn archives() -> Vec<Operation> {
    const ARCHIVE: Content = Content {
        media: "application/x-tar",
        shape: Shape::Binary,
    };
    vec![
        new(
            "POST",
            "/images/import",
            "importImages",
            "Brings images here from an archive: of OCI, of `docker save`, or a root filesystem.",
        )
        .audited("image.import")
        .query(
            "name",
            Shape::Text,
            "The image's reference; those in the archive otherwise. A root filesystem needs one.",
        )
        .body(BYTES, Shape::Binary, true)
        .answers_json(200, "They are here.", Shape::Named("ImportImagesResponse"))
        .errors(&[404, 408, 409]),
        new(
            "GET",
            "/images/export",
            "exportImage",
            "An image as an OCI archive.",
        )
        .required_query("reference", Shape::Text, "The image, by name or id.")
        .answers_with(200, "The archive.", &[ARCHIVE])
        .errors(&[404, 409]),
    ]
}

pub(super) fn volumes() -> Vec<Operation> {
    vec![
        new("GET", "/volumes", "listVolumes", "Lists named volumes.").answers_json(
            200,
            "The volumes.",
            Shape::Named("ListVolumesResponse"),
        ),
        new("POST", "/volumes", "createVolume", "Makes a named volume.")
            .audited("volume.create")
            .takes(Shape::Named("CreateVolumeRequest"))
            .answers_json(
                201,
                "It is there, and may have been before.",
                Shape::Named("VolumeSummary"),
            ),
        new(
            "DELETE",
            "/volumes/{name}",
            "deleteVolume",
            "Removes a volume with all it holds.",
        )
        .audited("volume.delete")
        .query(
            "force",
            Shape::Flag,
            "Also while sandboxes have it mounted.",
        )
        .answers(204, "It is gone.")
        .errors(&[404, 409]),
    ]
}
