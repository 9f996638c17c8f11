package dev.osb;

import java.util.List;

/**
 * What came of a download.
 *
 * @param entries files, directories and links that were made
 * @param bytes bytes of their contents
 * @param skipped links that lead out of the directory, and links to other files of it, which are not made
 */
public record DownloadedDirectory(long entries, long bytes, List<String> skipped) {}
