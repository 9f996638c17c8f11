//go:build !never

// A program that uses what cells use most, built once so that the first cell finds the standard
// library compiled.
package main

import (
	_ "bufio"
	_ "bytes"
	_ "context"
	_ "encoding/base64"
	_ "encoding/csv"
	_ "encoding/hex"
	_ "encoding/json"
	_ "errors"
	_ "flag"
	_ "fmt"
	_ "io"
	_ "log"
	_ "maps"
	_ "math/big"
	_ "math/rand"
	_ "net/http"
	_ "os/exec"
	_ "os/signal"
	_ "path/filepath"
	_ "reflect"
	_ "regexp"
	_ "runtime"
	_ "slices"
	_ "sort"
	_ "strconv"
	_ "strings"
	_ "sync/atomic"
	_ "text/tabwriter"
	_ "text/template"
	_ "time"
	_ "unicode/utf8"
)

func main() {}
