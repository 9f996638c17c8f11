// Writes a Brotli-compressed file to stdout, for ../prepare: Debian's tar reads no Brotli.

import { createReadStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";

await pipeline(createReadStream(process.argv[2]), createBrotliDecompress(), process.stdout);
