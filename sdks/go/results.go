package osb

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"regexp"
	"strings"
)

// ResultKind is the richest form of a [RichResult].
type ResultKind string

// The forms of results, the richest first.
const (
	// ResultFigure is a picture.
	ResultFigure ResultKind = "figure"
	// ResultTable is rows of cells.
	ResultTable ResultKind = "table"
	// ResultText is plain text.
	ResultText ResultKind = "text"
	// ResultOther is a form that only ByType has.
	ResultOther ResultKind = "other"
)

// figureTypes are forms of pictures, the sharpest first.
var figureTypes = []string{"image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp"}

// RichResult is a value of code in every form it has.
type RichResult struct {
	// ByType has the value by media type: text as it is, images as base64.
	ByType map[string]string
	// Count is which cell it is the value of; nil for a display.
	Count *int64
}

// Figure is a picture that code made.
type Figure struct {
	// MediaType is image/png, image/svg+xml and so on.
	MediaType string
	// Bytes are the picture's own.
	Bytes []byte
}

func newRichResult(byType map[string]json.RawMessage, count *int64) *RichResult {
	result := &RichResult{ByType: make(map[string]string, len(byType)), Count: count}
	for mediaType, value := range byType {
		var text string
		if json.Unmarshal(value, &text) != nil {
			// What arrives as another JSON value is kept as its text.
			text = string(value)
		}
		result.ByType[mediaType] = text
	}
	return result
}

// Kind is the richest form it has.
func (r *RichResult) Kind() ResultKind {
	if r.figureType() != "" {
		return ResultFigure
	}
	if tableTag.MatchString(r.HTML()) {
		return ResultTable
	}
	if _, ok := r.Text(); ok {
		return ResultText
	}
	return ResultOther
}

// Text is the value as plain text, and whether it has that form.
func (r *RichResult) Text() (string, bool) {
	if text, ok := r.ByType["text/plain"]; ok {
		return text, true
	}
	text, ok := r.ByType["text"]
	return text, ok
}

// HTML is the value as HTML; empty where it has no such form.
func (r *RichResult) HTML() string { return r.ByType["text/html"] }

// Markdown is the value as Markdown; empty where it has no such form.
func (r *RichResult) Markdown() string { return r.ByType["text/markdown"] }

// JSON is the value as JSON; nil where it has no such form.
func (r *RichResult) JSON() json.RawMessage {
	if text, ok := r.ByType["application/json"]; ok {
		return json.RawMessage(text)
	}
	return nil
}

func (r *RichResult) figureType() string {
	for _, mediaType := range figureTypes {
		if _, ok := r.ByType[mediaType]; ok {
			return mediaType
		}
	}
	return ""
}

// Figure is the value as a picture; nil where it has no such form.
func (r *RichResult) Figure() *Figure {
	mediaType := r.figureType()
	if mediaType == "" {
		return nil
	}
	text := r.ByType[mediaType]
	if mediaType == "image/svg+xml" {
		return &Figure{mediaType, []byte(text)}
	}
	// Whatever is not text comes as base64.
	content, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil
	}
	return &Figure{mediaType, content}
}

var (
	tableTag = regexp.MustCompile(`(?i)<table[\s>]`)
	tableRow = regexp.MustCompile(`(?is)<tr[\s>].*?</tr>`)
	rowCell  = regexp.MustCompile(`(?is)<t[hd][\s>].*?</t[hd]>`)
	anyTag   = regexp.MustCompile(`<[^>]*>`)
)

// Table is the value as a table, where its HTML has one, as data frames have: rows of cells, the head first.
func (r *RichResult) Table() [][]string {
	if !tableTag.MatchString(r.HTML()) {
		return nil
	}
	rows := [][]string{}
	for _, row := range tableRow.FindAllString(r.HTML(), -1) {
		var cells []string
		for _, cell := range rowCell.FindAllString(row, -1) {
			cells = append(cells, strings.TrimSpace(html.UnescapeString(anyTag.ReplaceAllString(cell, ""))))
		}
		rows = append(rows, cells)
	}
	return rows
}
