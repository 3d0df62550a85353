-- Run once by the postgres image, when its volume is empty: a user that owns one schema and may do nothing else.
\set password `cat /run/secrets/database_password`
CREATE ROLE codemode_mcp LOGIN PASSWORD :'password';
REVOKE ALL ON DATABASE codemode_mcp FROM PUBLIC;
GRANT CONNECT ON DATABASE codemode_mcp TO codemode_mcp;
CREATE SCHEMA codemode_mcp AUTHORIZATION codemode_mcp;
