//go:build never

// The Go programs of the image, pinned by go.mod and go.sum: the kernel, and what it calls to
// add imports that a cell leaves out.
package kernel

import (
	_ "github.com/janpfeifer/gonb"
	_ "golang.org/x/tools/cmd/goimports"
)
