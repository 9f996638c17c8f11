//! Files and directories of a sandbox.

use std::collections::BTreeMap;
use std::ops::Range;

use api::exec::file::{
    ArchiveResponse, FileInfo, FileInfoMap, Permission, PermissionMap, Rename, Replace, ReplaceMap,
    ReplacedMap,
};
use api::file_mode::FileMode;
use api::query::QueryWriter;
use http::header::RANGE;
use http::{HeaderValue, Method};

use crate::contents::{self, ByteStream, Contents, WriteFile};
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;
use crate::transport::Target;

/// What a directory is sent as.
const TAR: HeaderValue = HeaderValue::from_static("application/x-tar");

/// The files of a sandbox; see [`Sandbox::files`].
#[derive(Debug, Clone)]
pub struct Files {
    sandbox: Sandbox,
    /// As whom: `/v1/filesystem/{uid}/{gid}`, or nothing for the daemon's own user.
    prefix: String,
}

impl Files {
    pub(crate) fn new(sandbox: Sandbox) -> Self {
        Self {
            sandbox,
            prefix: String::new(),
        }
    }

    /// The files as this user and group see them.
    #[must_use]
    pub fn as_user(&self, uid: u32, gid: u32) -> Self {
        Self {
            sandbox: self.sandbox.clone(),
            prefix: format!("/v1/filesystem/{uid}/{gid}"),
        }
    }

    async fn exec(&self) -> Result<Target> {
        self.sandbox.exec().await
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// Reads a file.
    pub async fn read(&self, path: &str) -> Result<Vec<u8>> {
        self.download(path).await?.bytes().await
    }

    /// Reads a file that is UTF-8 text.
    pub async fn read_text(&self, path: &str) -> Result<String> {
        String::from_utf8(self.read(path).await?).map_err(|error| Error::Unreadable {
            what: path.to_owned(),
            message: format!("it is not UTF-8 text: {error}; read it as bytes"),
        })
    }

    /// Reads some bytes of a file; fewer where it ends before.
    pub async fn read_range(&self, path: &str, bytes: Range<u64>) -> Result<Vec<u8>> {
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        let range = format!("bytes={}-{}", bytes.start, bytes.end - 1);
        self.read_range_header(path, &range).await?.bytes().await
    }

    /// Reads a part of a file, named as in a `Range` header: `bytes=0-99`, `bytes=-5`.
    pub async fn read_range_header(&self, path: &str, range: &str) -> Result<ByteStream> {
        let range = HeaderValue::try_from(range)
            .map_err(|_| Error::InvalidArgument(format!("{range:?} is not a range")))?;
        let exec = self.exec().await?;
        let request = exec.get(self.at("/files/download")).query(of(path));
        Ok(ByteStream::new(request.header(RANGE, range).send().await?))
    }

    /// Reads `count` lines of a file from line `first` on, which counts from 1.
    pub async fn read_lines(&self, path: &str, first: u64, count: u64) -> Result<String> {
        let exec = self.exec().await?;
        let query = QueryWriter::new()
            .pair("path", path)
            .pair("offset", &first.to_string())
            .pair("limit", &count.to_string());
        let request = exec.get(self.at("/files/download")).query(query.finish());
        let bytes = request.bytes_answer().await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a file as it arrives.
    pub async fn download(&self, path: &str) -> Result<ByteStream> {
        let exec = self.exec().await?;
        let request = exec.get(self.at("/files/download")).query(of(path));
        Ok(ByteStream::new(request.send().await?))
    }

    /// Writes a file, whole or not at all; directories on the way are made.
    ///
    /// ```no_run
    /// # async fn example(sandbox: &opensandbox::Sandbox) -> opensandbox::Result<()> {
    /// sandbox.files().write("/tmp/greeting", "hello").await?;
    /// assert_eq!(sandbox.files().read_text("/tmp/greeting").await?, "hello");
    /// # Ok(()) }
    /// ```
    pub async fn write(
        &self,
        path: impl Into<String>,
        contents: impl Into<Contents>,
    ) -> Result<()> {
        self.write_all(vec![WriteFile::new(path, contents)]).await
    }

    /// Writes files in one request.
    pub async fn write_all(&self, files: Vec<WriteFile>) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let exec = self.exec().await?;
        let form = contents::form(files);
        let request = exec.post(self.at("/files/upload"));
        let request = match form.body {
            contents::FormBody::Whole(bytes) => request.bytes(bytes, form.content_type),
            contents::FormBody::Stream(body) => request
                .body(body, form.content_type, form.length)
                // Takes as long as the source takes to give its bytes.
                .timeout(None),
        };
        request.done().await
    }

    /// What is known of files, by the paths as given.
    pub async fn info<P: AsRef<str>>(&self, paths: &[P]) -> Result<FileInfoMap> {
        let exec = self.exec().await?;
        let request = exec.get(self.at("/files/info")).query(each(paths));
        request.json_answer().await
    }

    /// Whether a path exists.
    pub async fn exists(&self, path: &str) -> Result<bool> {
        match self.info(&[path]).await {
            Ok(found) => Ok(!found.is_empty()),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists a directory, this many levels deep.
    pub async fn list(&self, path: &str, depth: u32) -> Result<Vec<FileInfo>> {
        let exec = self.exec().await?;
        let query = QueryWriter::new()
            .pair("path", path)
            .pair("depth", &depth.to_string());
        let request = exec.get(self.at("/directories/list")).query(query.finish());
        request.json_answer().await
    }

    /// Finds files below a directory by a glob.
    pub async fn search(&self, path: &str, pattern: &str) -> Result<Vec<FileInfo>> {
        let exec = self.exec().await?;
        let query = QueryWriter::new()
            .pair("path", path)
            .pair("pattern", pattern);
        let request = exec.get(self.at("/files/search")).query(query.finish());
        request.json_answer().await
    }

    /// Moves a file or directory.
    pub async fn rename(&self, from: impl Into<String>, to: impl Into<String>) -> Result<()> {
        let (src, dest) = (from.into(), to.into());
        self.rename_all(&[Rename { src, dest }]).await
    }

    /// Moves files and directories.
    pub async fn rename_all(&self, moves: &[Rename]) -> Result<()> {
        let exec = self.exec().await?;
        exec.post(self.at("/files/mv")).json(moves).done().await
    }

    /// Removes files; one that is not there is no error.
    pub async fn delete<P: AsRef<str>>(&self, paths: &[P]) -> Result<()> {
        let exec = self.exec().await?;
        let request = exec.delete(self.at("/files")).query(each(paths));
        request.done().await
    }

    /// Makes directories with their parents.
    pub async fn create_directories<P: AsRef<str>>(&self, paths: &[P]) -> Result<()> {
        let plain = |path: &P| (path.as_ref().to_owned(), Permission::default());
        self.create_directories_with(&paths.iter().map(plain).collect())
            .await
    }

    /// Makes directories with their parents, each with its mode and owner.
    pub async fn create_directories_with(&self, directories: &PermissionMap) -> Result<()> {
        let exec = self.exec().await?;
        let request = exec.post(self.at("/directories")).json(directories);
        request.done().await
    }

    /// Removes directories with everything in them.
    pub async fn delete_directories<P: AsRef<str>>(&self, paths: &[P]) -> Result<()> {
        let exec = self.exec().await?;
        let request = exec.delete(self.at("/directories")).query(each(paths));
        request.done().await
    }

    /// Sets the mode of a file: `0o644`.
    pub async fn set_mode(&self, path: impl Into<String>, mode: u32) -> Result<()> {
        let permission = Permission {
            mode: Some(FileMode::from_bits(mode)),
            ..Permission::default()
        };
        self.set_permissions(&[(path.into(), permission)].into())
            .await
    }

    /// Sets mode, owner and group of files.
    pub async fn set_permissions(&self, files: &PermissionMap) -> Result<()> {
        let exec = self.exec().await?;
        let request = exec.post(self.at("/files/permissions")).json(files);
        request.done().await
    }

    /// Replaces every occurrence of `old` in a file and returns how many there were; nothing
    /// where the daemon does not say.
    pub async fn replace(
        &self,
        path: impl Into<String>,
        old: impl Into<String>,
        new: impl Into<String>,
    ) -> Result<Option<u64>> {
        let path = path.into();
        let replace = Replace {
            old: old.into(),
            new: new.into(),
        };
        let counts = self.replace_all(&[(path.clone(), replace)].into()).await?;
        Ok(counts.get(&path).copied())
    }

    /// Replaces text in files and returns how often each was found, where the daemon says so.
    pub async fn replace_all(&self, replacements: &ReplaceMap) -> Result<BTreeMap<String, u64>> {
        let exec = self.exec().await?;
        let request = exec
            .post(self.at("/files/replace"))
            .query(QueryWriter::new().pair("verbose", "true").finish())
            .json(replacements);
        let bytes = request.bytes_answer().await?;
        // Older daemons answer nothing.
        let counts: ReplacedMap = serde_json::from_slice(&bytes).unwrap_or_default();
        let counts = counts.into_iter();
        Ok(counts
            .map(|(path, replaced)| (path, replaced.replaced_count))
            .collect())
    }

    /// Extension: a directory with everything below it, as a tar stream.
    pub async fn download_archive(&self, directory: &str) -> Result<ByteStream> {
        let exec = self.exec().await?;
        let request = exec
            .get(self.at("/directories/archive"))
            .query(of(directory));
        Ok(ByteStream::new(request.send().await?))
    }

    /// Extension: unpacks a tar stream into a directory, which is made when it is not there.
    pub async fn upload_archive(
        &self,
        directory: &str,
        archive: impl Into<Contents>,
    ) -> Result<ArchiveResponse> {
        let exec = self.exec().await?;
        let archive = archive.into();
        let length = archive.length();
        let request = exec
            .request(Method::PUT, self.at("/directories/archive"))
            .query(of(directory))
            .body(archive.into_body(), TAR, length)
            .timeout(None);
        request.json_answer().await
    }
}

fn of(path: &str) -> String {
    QueryWriter::new().pair("path", path).finish()
}

fn each<P: AsRef<str>>(paths: &[P]) -> String {
    let writer = paths.iter().fold(QueryWriter::new(), |writer, path| {
        writer.pair("path", path.as_ref())
    });
    writer.finish()
}
