module github.com/palimpsest-dev/palimpsest/clients/go

go 1.24.0
