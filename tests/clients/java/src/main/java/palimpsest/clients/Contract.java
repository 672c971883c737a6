// Looks up the contract by name: methods of the generated stubs, and messages as proto3 JSON.
package palimpsest.clients;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.Any;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.MessageOrBuilder;
import com.google.protobuf.TypeRegistry;
import com.google.protobuf.util.JsonFormat;
import com.google.rpc.ErrorDetailsProto;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.PrototypeMarshaller;
import io.grpc.ServiceDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.ProtoFileDescriptorSupplier;
import io.grpc.protobuf.StatusProto;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import palimpsest.context.v1.AdminServiceGrpc;
import palimpsest.context.v1.ContextServiceGrpc;
import palimpsest.context.v1.Errors;
import palimpsest.context.v1.SessionServiceGrpc;

/** The methods and messages of the stubs. */
final class Contract {
    private static final List<ServiceDescriptor> SERVICES = List.of(
            ContextServiceGrpc.getServiceDescriptor(),
            SessionServiceGrpc.getServiceDescriptor(),
            AdminServiceGrpc.getServiceDescriptor());
    private static final Map<String, MethodDescriptor<?, ?>> METHODS = methods();
    private static final TypeRegistry TYPES = types();

    private Contract() {}

    private static Map<String, MethodDescriptor<?, ?>> methods() {
        Map<String, MethodDescriptor<?, ?>> methods = new HashMap<>();
        for (ServiceDescriptor service : SERVICES) {
            String name = service.getName().substring(service.getName().lastIndexOf('.') + 1);
            service.getMethods().forEach(method -> methods.put(name + "." + method.getBareMethodName(), method));
        }
        return methods;
    }

    /** Returns the message types of error details. */
    private static TypeRegistry types() {
        TypeRegistry.Builder types = TypeRegistry.newBuilder().add(ErrorDetailsProto.getDescriptor().getMessageTypes());
        for (ServiceDescriptor service : SERVICES) {
            FileDescriptor file = ((ProtoFileDescriptorSupplier) service.getSchemaDescriptor()).getFileDescriptor();
            types.add(file.getMessageTypes());
            file.getDependencies().forEach(needed -> types.add(needed.getMessageTypes()));
        }
        types.add(Errors.getDescriptor().getMessageTypes());
        return types.build();
    }

    /** Finds a method by the name that a step uses. */
    @SuppressWarnings("unchecked") // The stubs' messages are all of them messages.
    static MethodDescriptor<Message, Message> method(String name) {
        MethodDescriptor<?, ?> method = METHODS.get(name);
        if (method == null) {
            throw new IllegalArgumentException("the contract has no " + name);
        }
        return (MethodDescriptor<Message, Message>) method;
    }

    /** Returns a request of the method's input type. */
    static Message request(MethodDescriptor<Message, Message> method, String json) {
        Message prototype = ((PrototypeMarshaller<Message>) method.getRequestMarshaller()).getMessagePrototype();
        Message.Builder request = prototype.newBuilderForType();
        try {
            JsonFormat.parser().merge(json, request);
        } catch (InvalidProtocolBufferException wrong) {
            throw new IllegalArgumentException(wrong);
        }
        return request.build();
    }

    static JsonElement asJson(MessageOrBuilder message) {
        try {
            return JsonParser.parseString(JsonFormat.printer().print(message));
        } catch (InvalidProtocolBufferException wrong) {
            throw new IllegalArgumentException(wrong);
        }
    }

    /** Returns the details of a status, each with its type. */
    static JsonArray details(StatusRuntimeException refused) {
        JsonArray details = new JsonArray();
        for (Any packed : StatusProto.fromThrowable(refused).getDetailsList()) {
            JsonObject detail = new JsonObject();
            try {
                Descriptor type = TYPES.getDescriptorForTypeUrl(packed.getTypeUrl());
                if (type == null) {
                    throw new IllegalArgumentException("a detail of an unknown type: " + packed.getTypeUrl());
                }
                detail.addProperty("type", type.getFullName());
                detail.add("value", asJson(DynamicMessage.parseFrom(type, packed.getValue())));
            } catch (InvalidProtocolBufferException wrong) {
                throw new IllegalArgumentException(wrong);
            }
            details.add(detail);
        }
        return details;
    }
}
