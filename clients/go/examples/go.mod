module github.com/palimpsest-dev/palimpsest/clients/go/examples

go 1.25.0

require (
	github.com/anthropics/anthropic-sdk-go/v2 v2.15.0
	github.com/palimpsest-dev/palimpsest/clients/go v0.0.0
)

replace github.com/palimpsest-dev/palimpsest/clients/go => ../
